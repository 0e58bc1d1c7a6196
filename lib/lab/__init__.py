"""What the chapters show: the running example, instruments, figures and widgets."""
