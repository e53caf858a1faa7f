"""From standardised rows to a trained model and its posterior."""
