"""`rarecall demo`: one-shot learning of generated handwriting, without any download."""
