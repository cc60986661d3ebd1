"""One page of HTML that shows a job and its verdict, and needs no other file and no network."""
