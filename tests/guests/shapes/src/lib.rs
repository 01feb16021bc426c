//! A third party's component: it knows nothing of Portcullis, and exports functions over all kinds of types.

wit_bindgen::generate!({ path: "wit", world: "shapes" });

use exports::acme::shapes::handles::{self, Door, GuestDoor};
use exports::acme::shapes::mirror::{self, Colour, Point, Rights, Shape};

struct Shapes;

macro_rules! mirrors {
    ($($name:ident: $ty:ty),* $(,)?) => {
        impl mirror::Guest for Shapes {
            $(fn $name(v: $ty) -> $ty {
                v
            })*
        }
    };
}

mirrors! {
    bools: bool,
    bytes: (i8, u8, i16, u16, i32, u32),
    longs: (i64, u64),
    floats: (f32, f64),
    texts: (char, String),
    lists: Vec<Vec<u16>>,
    colours: Vec<Colour>,
    flagged: Rights,
    points: Point,
    shapes: Vec<Shape>,
    options: Option<u8>,
    nested: Vec<Option<Option<u8>>>,
    results: Vec<Result<u8, String>>,
    empties: Vec<Result<(), ()>>,
}

struct Hinge;

impl GuestDoor for Hinge {
    fn new() -> Self {
        Self
    }

    fn open(&self) -> bool {
        true
    }
}

impl handles::Guest for Shapes {
    type Door = Hinge;

    fn through(_: Door) {}
}

impl Guest for Shapes {
    fn divide(a: i32, b: i32) -> Result<i32, String> {
        a.checked_div(b).ok_or_else(|| "division by zero".to_owned())
    }

    fn count(text: String) -> Vec<Word> {
        text.split_whitespace().map(|word| Word { text: word.to_owned(), times: 1 }).collect()
    }

    fn greet(name: String, times: Option<u8>) -> String {
        format!("hello {name}").repeat(times.unwrap_or(1).into())
    }

    fn nothing() {}

    fn spin() {
        loop {
            std::hint::black_box(());
        }
    }

    fn grow() -> u32 {
        let mut hoard = Vec::new();
        loop {
            hoard.push(vec![1_u8; 1 << 20]);
            std::hint::black_box(&hoard);
        }
    }

    fn hoard() {
        loop {
            std::mem::forget(Door::new(Hinge));
        }
    }
}

export!(Shapes);
