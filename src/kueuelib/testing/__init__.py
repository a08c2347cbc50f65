"""What tests of controllers need."""
