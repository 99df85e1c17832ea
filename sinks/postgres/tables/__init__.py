"""Tables of users: made, checked, owned, and kept from changing what is written."""
