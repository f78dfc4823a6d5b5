"""A language model of the transformers library that is taught documents and names."""
