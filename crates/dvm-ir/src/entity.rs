//! Typed u32 references into arenas. Their `Display` is what the text form prints.

/// Declares an entity reference: `entity!(/// doc ValueId, "v");` prints as `v12`.
#[macro_export]
macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// The reference to arena element `i`.
            #[must_use]
            pub fn new(i: usize) -> Self { $name(u32::try_from(i).expect("arena of at most 2^32 elements")) }
            /// Position in the arena.
            #[must_use]
            pub fn index(self) -> usize { self.0 as usize }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, concat!($prefix, "{}"), self.0) }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { std::fmt::Display::fmt(self, f) }
        }
    };
}
