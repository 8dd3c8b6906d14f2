"""What an author touches: agents, their tools, and what is put around them."""
