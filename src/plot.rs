//! SVG figures.
