"""The objects of remote storage: stores have bytes by key, layouts know which object is which part of a segment.

A store is a directory or a bucket; it has no call that writes.  A layout is the naming and the encoding of one storage
manager.  The two halves share nothing but the `Store` protocol; another layout is one more module, and a row in
`klog.tier.tier.LAYOUTS`.
"""
