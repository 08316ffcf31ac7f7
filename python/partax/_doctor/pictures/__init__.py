"""The pictures of the doctor's page, as SVG without scripts. The page's style sheet has the colours of the classes."""
