"""The pictures of the doctor's page as data: the page's template draws them."""
