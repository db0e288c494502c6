"""Judge each part of an installation for `topolog doctor`. Pure: observations in, findings out."""
