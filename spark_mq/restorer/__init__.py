"""Messages back into a store that a broker boots from."""
