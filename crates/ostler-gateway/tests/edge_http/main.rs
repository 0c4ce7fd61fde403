//! The HTTP edge, over real sockets.

mod gates;
mod legacy;
mod modern;
mod world;
