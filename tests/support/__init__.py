"""What tests share: real stores and their facts, stores that a test writes, plain models to compare with."""
