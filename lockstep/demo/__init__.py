"""Applications that show what conditional appends are good for. They use what any application may use."""
