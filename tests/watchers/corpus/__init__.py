"""What the watchers are measured with: instructions, attacks that make an agent recite them, ordinary transcripts."""
