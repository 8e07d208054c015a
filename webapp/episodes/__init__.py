"""Episodes of both arms and their transcripts."""
