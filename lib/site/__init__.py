"""The course as a site, and in a browser with nothing installed.

``launchable``  how far a notebook runs in a browser: its own metadata says so
``lite``        JupyterLite with the chapters, the exercises and `lib`: `course lite`
``pages``       the static site around it: `course site`; laid out by `sources` and `api`, made
                by Sphinx as `settings` and `extension` say, with `extras` beside them, its links
                followed by `links`
"""
