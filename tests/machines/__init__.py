"""The course on machines that are not like the one at hand."""
