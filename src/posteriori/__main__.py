"""`python -m posteriori` is the command line."""

from posteriori.cli import app

if __name__ == "__main__":
    app(prog_name="posteriori")
