//! The HTTP edge, over real sockets.

mod calls;
mod gates;
mod legacy;
mod modern;
mod world;
