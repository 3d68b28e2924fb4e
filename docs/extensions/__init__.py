"""What the site needs beyond Sphinx: generated pages, links out of docs/, formulas, and an index for programs."""
