"""`topolog doctor`: what an installation looks like from outside, judged part by part. Pure: facts
in, findings out.
"""
