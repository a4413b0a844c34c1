"""placeholder"""
FORMAT = "nsight"; NAME = "x"
def sniff(head): return 0.0
