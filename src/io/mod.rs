//! Files: .npy, .npz and Tensor Toolbox text.
