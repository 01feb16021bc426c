//! Converts values of WIT types from JSON and to JSON, in the form that [`super::schema`] describes. Only a number that
//! is given for a float is rounded, to the nearest float.

use std::cell::Cell;
use std::fmt;

use serde_json::{Value, json};
use wasmtime::component::Val;
use wasmtime::component::types::Type;

use super::schema::{EXACT, ODD_FLOATS};

/// The most characters of a wrong value that its error message shows.
const SHOWN_CHARS: usize = 40;

/// The most values in the arguments of a call: each takes many times the memory of its text.
pub(super) const MAX_VALUES: usize = 250_000;

/// The place of a value, which is written only for an error, and the room that is left for further values.
pub(super) struct At<'a> {
    around: Option<&'a At<'a>>,
    step: Step<'a>,
    room: &'a Cell<usize>,
}

enum Step<'a> {
    Member(&'a str),
    Element(usize),
}

impl<'a> At<'a> {
    pub(super) fn root(name: &'a str, room: &'a Cell<usize>) -> Self {
        Self { around: None, step: Step::Member(name), room }
    }

    fn member<'b>(&'b self, name: &'b str) -> At<'b> {
        At { around: Some(self), step: Step::Member(name), room: self.room }
    }

    fn element(&self, n: usize) -> At<'_> {
        At { around: Some(self), step: Step::Element(n), room: self.room }
    }

    /// Takes the room of one value.
    fn take_room(&self) -> Result<(), String> {
        self.room.set(self.room.get().checked_sub(1).ok_or_else(too_many)?);
        Ok(())
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.around, &self.step) {
            (None, Step::Member(name)) => write!(f, "{name}"),
            (Some(around), Step::Member(name)) => write!(f, "{around}.{name}"),
            (Some(around), Step::Element(n)) => write!(f, "{around}[{n}]"),
            (None, Step::Element(n)) => write!(f, "[{n}]"),
        }
    }
}

/// Returns the error for arguments of more than [`MAX_VALUES`].
pub(super) fn too_many() -> String {
    format!("the arguments have more than {MAX_VALUES} values, and a function takes no more")
}

/// Returns how many values there are at most in JSON text.
pub(super) fn count(json: &[u8]) -> usize {
    let (mut values, mut in_string, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

/// Reads the members of an object, in the order of the type.
pub(super) fn fields<'a>(
    types: impl Iterator<Item = (&'a str, Type)>,
    value: &Value,
    at: &At<'_>,
) -> Result<Vec<(String, Val)>, String> {
    let members = value.as_object().ok_or_else(|| unexpected(value, at, "an object"))?;
    let mut fields = Vec::new();
    for (name, ty) in types {
        let at = at.member(name);
        let value = match (members.get(name), &ty) {
            (Some(value), ty) => read(value, ty, &at)?,
            (None, Type::Option(_)) => {
                at.take_room()?;
                Val::Option(None)
            }
            (None, _) => return Err(format!("{at}: missing")),
        };
        fields.push((name.to_owned(), value));
    }
    match members.keys().find(|key| !fields.iter().any(|(name, _)| name == *key)) {
        None => Ok(fields),
        Some(key) => {
            let known: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("{at}.{}: unknown; there are {}", shown(key), known.join(", ")))
        }
    }
}

/// Reads a value of a type.
pub(super) fn read(value: &Value, ty: &Type, at: &At<'_>) -> Result<Val, String> {
    at.take_room()?;
    let wrong = |expected: &str| unexpected(value, at, expected);
    let elements = |expected| value.as_array().ok_or_else(|| wrong(expected));
    let each = |items: &[Value], ty: &Type| -> Result<Vec<Val>, String> {
        items.iter().enumerate().map(|(n, item)| read(item, ty, &at.element(n))).collect()
    };
    Ok(match ty {
        Type::Bool => Val::Bool(value.as_bool().ok_or_else(|| wrong("true or false"))?),
        Type::S8 => Val::S8(integer(value).ok_or_else(|| wrong("an integer from -128 to 127"))?),
        Type::U8 => Val::U8(integer(value).ok_or_else(|| wrong("an integer from 0 to 255"))?),
        Type::S16 => Val::S16(integer(value).ok_or_else(|| wrong("an integer of 16 bits"))?),
        Type::U16 => Val::U16(integer(value).ok_or_else(|| wrong("an integer from 0 to 65535"))?),
        Type::S32 => Val::S32(integer(value).ok_or_else(|| wrong("an integer of 32 bits"))?),
        Type::U32 => Val::U32(integer(value).ok_or_else(|| wrong("an integer from 0 to 4294967295"))?),
        Type::S64 => Val::S64(long(value).ok_or_else(|| wrong("an integer of 64 bits"))?),
        Type::U64 => Val::U64(long(value).ok_or_else(|| wrong("an integer from 0 to 18446744073709551615"))?),
        Type::Float32 => Val::Float32(short(value).ok_or_else(|| wrong("a number that fits into 32 bits"))?),
        Type::Float64 => Val::Float64(float(value).ok_or_else(|| wrong("a number"))?),
        Type::Char => {
            let mut chars = value.as_str().unwrap_or_default().chars();
            match (chars.next(), chars.next()) {
                (Some(only), None) => Val::Char(only),
                _ => return Err(wrong("one character")),
            }
        }
        Type::String => Val::String(value.as_str().ok_or_else(|| wrong("text"))?.to_owned()),
        Type::List(list) => Val::List(each(elements("a list")?, &list.ty())?),
        Type::FixedLengthList(list) => {
            let items = elements("a list")?;
            if u32::try_from(items.len()) != Ok(list.len()) {
                return Err(wrong(&format!("a list of {} elements", list.len())));
            }
            Val::FixedLengthList(each(items, &list.ty())?)
        }
        Type::Map(map) => {
            let pair = |(n, item)| -> Result<(Val, Val), String> {
                let mut pair = tuple(item, &[map.key(), map.value()], &at.element(n))?.into_iter();
                pair.next().zip(pair.next()).ok_or_else(|| wrong("a list of pairs"))
            };
            Val::Map(elements("a list of pairs")?.iter().enumerate().map(pair).collect::<Result<_, _>>()?)
        }
        Type::Tuple(types) => Val::Tuple(tuple(value, &types.types().collect::<Vec<_>>(), at)?),
        Type::Record(record) => Val::Record(fields(record.fields().map(|field| (field.name, field.ty)), value, at)?),
        Type::Enum(cases) => {
            let known = |name: &&str| cases.names().any(|case| case == *name);
            let name = value.as_str().filter(known).ok_or_else(|| wrong(&one_of(cases.names())))?;
            Val::Enum(name.to_owned())
        }
        Type::Flags(flags) => {
            let given = elements("a list of names")?;
            let is_flag = |item: &&Value| item.as_str().is_some_and(|name| flags.names().any(|flag| flag == name));
            if let Some(odd) = given.iter().find(|item| !is_flag(item)) {
                return Err(unexpected(odd, at, &one_of(flags.names())));
            }
            // Each flag once, in the order of the type.
            let is_set = |name: &&str| given.iter().any(|item| item.as_str() == Some(name));
            Val::Flags(flags.names().filter(is_set).map(str::to_owned).collect())
        }
        Type::Variant(variant) => {
            let (name, carried) =
                case(value, &variant.cases().map(|case| (case.name, case.ty)).collect::<Vec<_>>(), at)?;
            Val::Variant(name, carried.map(Box::new))
        }
        Type::Result(result) => {
            let (name, carried) = case(value, &[("ok", result.ok()), ("err", result.err())], at)?;
            let carried = carried.map(Box::new);
            Val::Result(if name == "ok" { Ok(carried) } else { Err(carried) })
        }
        Type::Option(_) if value.is_null() => Val::Option(None),
        Type::Option(option) => {
            let some = match option.ty() {
                inner @ Type::Option(_) => case(value, &[("some", Some(inner))], at)?.1,
                inner => Some(read(value, &inner, at)?),
            };
            Val::Option(some.map(Box::new))
        }
        _ => return Err(format!("{at}: a type that no value outside the component has")),
    })
}

/// Returns a value of a type as JSON.
pub(super) fn of(value: &Val, ty: &Type) -> Value {
    let list = |items: &[Val], ty: &Type| Value::Array(items.iter().map(|item| of(item, ty)).collect());
    match (value, ty) {
        (Val::Bool(value), _) => json!(value),
        (Val::S8(value), _) => json!(value),
        (Val::U8(value), _) => json!(value),
        (Val::S16(value), _) => json!(value),
        (Val::U16(value), _) => json!(value),
        (Val::S32(value), _) => json!(value),
        (Val::U32(value), _) => json!(value),
        (Val::S64(value), _) if value.unsigned_abs() <= EXACT => json!(value),
        (Val::S64(value), _) => json!(value.to_string()),
        (Val::U64(value), _) if *value <= EXACT => json!(value),
        (Val::U64(value), _) => json!(value.to_string()),
        // The shortest digits that identify this float, and not those of the same value as a wider one.
        (Val::Float32(value), _) if value.is_finite() => json!(value.to_string().parse::<f64>().unwrap_or_default()),
        (Val::Float64(value), _) if value.is_finite() => json!(value),
        (Val::Float32(value), _) => json!(odd_float(f64::from(*value))),
        (Val::Float64(value), _) => json!(odd_float(*value)),
        (Val::Char(value), _) => json!(value),
        (Val::String(value), _) => json!(value),
        (Val::List(items), Type::List(ty)) => list(items, &ty.ty()),
        (Val::FixedLengthList(items), Type::FixedLengthList(ty)) => list(items, &ty.ty()),
        (Val::Map(pairs), Type::Map(ty)) => {
            pairs.iter().map(|(key, value)| json!([of(key, &ty.key()), of(value, &ty.value())])).collect()
        }
        (Val::Tuple(items), Type::Tuple(ty)) => items.iter().zip(ty.types()).map(|(item, ty)| of(item, &ty)).collect(),
        (Val::Record(members), Type::Record(ty)) => {
            let member = |((name, value), field): (&(String, Val), _)| {
                let field: wasmtime::component::types::Field<'_> = field;
                (name.clone(), of(value, &field.ty))
            };
            Value::Object(members.iter().zip(ty.fields()).map(member).collect())
        }
        (Val::Enum(name), _) => json!(name),
        (Val::Flags(names), _) => json!(names),
        (Val::Variant(name, carried), Type::Variant(ty)) => {
            let found = ty.cases().find(|case| case.name == name).and_then(|case| case.ty);
            cased(name, carried.as_deref(), found)
        }
        (Val::Result(Ok(carried)), Type::Result(ty)) => cased("ok", carried.as_deref(), ty.ok()),
        (Val::Result(Err(carried)), Type::Result(ty)) => cased("err", carried.as_deref(), ty.err()),
        (Val::Option(None), _) => Value::Null,
        (Val::Option(Some(value)), Type::Option(ty)) => match ty.ty() {
            inner @ Type::Option(_) => cased("some", Some(value), Some(inner)),
            inner => of(value, &inner),
        },
        // Functions with any other type were refused, and the engine returns values of the declared type.
        _ => Value::Null,
    }
}

fn cased(name: &str, carried: Option<&Val>, ty: Option<Type>) -> Value {
    match carried.zip(ty) {
        None => json!(name),
        Some((carried, ty)) => json!({ name: of(carried, &ty) }),
    }
}

fn tuple(value: &Value, types: &[Type], at: &At<'_>) -> Result<Vec<Val>, String> {
    let items = value.as_array().filter(|items| items.len() == types.len());
    let items = items.ok_or_else(|| unexpected(value, at, &format!("a list of {} elements", types.len())))?;
    items.iter().zip(types).enumerate().map(|(n, (item, ty))| read(item, ty, &at.element(n))).collect()
}

/// Reads a value of a variant: the name of the case, and its payload.
fn case(value: &Value, cases: &[(&str, Option<Type>)], at: &At<'_>) -> Result<(String, Option<Val>), String> {
    let wrong = || {
        let spelt = cases.iter().map(|(name, ty)| match ty {
            None => format!("{name:?}"),
            Some(_) => format!("{{{name:?}: …}}"),
        });
        unexpected(value, at, &format!("one of {}", spelt.collect::<Vec<_>>().join(", ")))
    };
    let (given, carried) = match value {
        Value::String(name) => (name.as_str(), None),
        Value::Object(members) if members.len() == 1 => {
            let (name, carried) = members.iter().next().ok_or_else(wrong)?;
            (name.as_str(), Some(carried))
        }
        _ => return Err(wrong()),
    };
    let (name, ty) = cases.iter().find(|(name, _)| *name == given).ok_or_else(wrong)?;
    let carried = match (carried, ty) {
        (None, None) => None,
        (Some(carried), Some(ty)) => Some(read(carried, ty, &at.member(name))?),
        _ => return Err(wrong()),
    };
    Ok(((*name).to_owned(), carried))
}

/// Reads an integer, also if it is written with a zero fraction.
fn integer<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "in the range where both are exact"
    )]
    let whole = |float: f64| (float.fract() == 0.0 && float.abs() <= EXACT as f64).then_some(float as i64);
    T::try_from(value.as_i64().or_else(|| value.as_f64().and_then(whole))?).ok()
}

fn long<T: TryFrom<i64> + TryFrom<u64> + std::str::FromStr>(value: &Value) -> Option<T> {
    match value {
        Value::String(digits) if !digits.starts_with('+') => digits.parse().ok(),
        value => value.as_u64().and_then(|value| T::try_from(value).ok()).or_else(|| integer(value)),
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::String(name) if ODD_FLOATS.contains(&name.as_str()) => name.parse().ok(),
        value => value.as_f64(),
    }
}

/// Reads a number as the nearest 32-bit float, or `None` if it is out of their range.
fn short(value: &Value) -> Option<f32> {
    let exact = float(value)?;
    #[expect(clippy::cast_possible_truncation, reason = "to the nearest, as the type asks for")]
    let short = exact as f32;
    (short.is_finite() || !exact.is_finite()).then_some(short)
}

fn odd_float(value: f64) -> &'static str {
    let [nan, infinity, minus] = ODD_FLOATS;
    match value {
        _ if value.is_nan() => nan,
        _ if value > 0.0 => infinity,
        _ => minus,
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", names.collect::<Vec<_>>().join(", "))
}

fn unexpected(value: &Value, at: &At<'_>, expected: &str) -> String {
    format!("{at}: {} is not {expected}", shown(&value.to_string()))
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
