"""Three cores that decide while frames flow, and the words for what they say of it. Pure."""
