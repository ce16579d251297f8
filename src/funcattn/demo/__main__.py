"""python -m funcattn.demo."""

from funcattn.demo.run import main

if __name__ == "__main__":
    main()
