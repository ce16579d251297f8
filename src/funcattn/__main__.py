"""`python -m funcattn` is the command `funcattn`."""

from funcattn.command import main

if __name__ == "__main__":
    main()
