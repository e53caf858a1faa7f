"""What users hand in, checked and turned into numbers."""
