"""The screens of `klog browse`; the only folder that imports Textual."""
