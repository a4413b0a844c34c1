"""From findings to a report: the answer, what is missing, receipts."""
