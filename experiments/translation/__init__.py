"""The paper's third table: translation, and one-shot learning measured by BLEU."""
