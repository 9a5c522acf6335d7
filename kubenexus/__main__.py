"""`python -m kubenexus`: the same as the `kubenexus` command."""

from kubenexus.cli import main

main()
