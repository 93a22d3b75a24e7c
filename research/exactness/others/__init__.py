"""`verify --others`: verification rules of other projects, called as they are published, against enumerated distributions."""
