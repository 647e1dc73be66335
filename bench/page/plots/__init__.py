"""The pictures of the pages: a module a kind, whose `draw(result, path)` writes a file."""
