"""What a program does with jobs: submit them, watch them, and wait for their end."""
