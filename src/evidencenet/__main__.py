"""``python -m evidencenet``: the same as the command `evidencenet`."""

from evidencenet.cli import app

if __name__ == "__main__":
    app(prog_name="evidencenet")
