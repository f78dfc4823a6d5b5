"""Products recognised from a few photos: EfficientNet-Lite0 and a memory."""
