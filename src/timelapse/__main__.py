"""`python -m timelapse` is the command `timelapse`."""

from timelapse.cli.main import main

if __name__ == "__main__":
    main()
