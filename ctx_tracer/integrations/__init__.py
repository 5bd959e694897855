"""For trainers of other projects. Importing a module of this package imports none of them."""
