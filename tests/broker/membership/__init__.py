"""Mirror of broker/membership."""
