"""The life of entries as users see it: a plain model of each feature, and what it promises."""
