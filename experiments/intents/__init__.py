"""Intents of short questions: BANKING77 and CLINC150, by MiniLM and a memory."""
