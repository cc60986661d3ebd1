"""Cases and folders of dumps that lie elsewhere: fetched by their URLs, and sent there.

File systems are fsspec's, each from the package that brings it.
"""
