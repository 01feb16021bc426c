//! Converts WIT types to JSON Schema. [`super::value`] converts the values.

use serde_json::{Value, json};
use wasmtime::component::types::Type;

/// The most types that the schema of one function may contain. WIT shares types where a schema repeats them, so a small
/// component could describe an endless schema; a realistic function has dozens.
const MAX_TYPES: u32 = 4096;

/// The largest integer that every JSON parser preserves (RFC 8259, section 6).
pub(super) const EXACT: u64 = (1 << 53) - 1;

/// The floats that JSON has no number for.
pub(super) const ODD_FLOATS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// The part of [`MAX_TYPES`] that is left for a function.
pub(super) struct TypeBudget(u32);

impl Default for TypeBudget {
    fn default() -> Self {
        Self(MAX_TYPES)
    }
}

/// Returns the schema of an object with these members. A member whose type is an option may be omitted.
pub(super) fn object<'a>(
    fields: impl Iterator<Item = (&'a str, Type)>,
    budget: &mut TypeBudget,
) -> Result<Value, String> {
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for (name, ty) in fields {
        if !matches!(ty, Type::Option(_)) {
            required.push(name.to_owned());
        }
        properties.insert(name.to_owned(), of(&ty, budget)?);
    }
    Ok(json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false }))
}

/// Returns the schema of a type, or why it has none.
pub(super) fn of(ty: &Type, budget: &mut TypeBudget) -> Result<Value, String> {
    budget.0 =
        budget.0.checked_sub(1).ok_or_else(|| format!("its schema would contain more than {MAX_TYPES} types"))?;
    Ok(match ty {
        Type::Bool => json!({ "type": "boolean" }),
        Type::S8 => integer(i8::MIN, i8::MAX),
        Type::U8 => integer(u8::MIN, u8::MAX),
        Type::S16 => integer(i16::MIN, i16::MAX),
        Type::U16 => integer(u16::MIN, u16::MAX),
        Type::S32 => integer(i32::MIN, i32::MAX),
        Type::U32 => integer(u32::MIN, u32::MAX),
        Type::S64 => long("^-?[0-9]{1,19}$", &json!(i64::MIN), &json!(i64::MAX)),
        Type::U64 => long("^[0-9]{1,20}$", &json!(0), &json!(u64::MAX)),
        Type::Float32 | Type::Float64 => json!({ "anyOf": [{ "type": "number" }, { "enum": ODD_FLOATS }] }),
        Type::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
        Type::String => json!({ "type": "string" }),
        Type::List(list) => json!({ "type": "array", "items": of(&list.ty(), budget)? }),
        Type::FixedLengthList(list) => {
            json!({ "type": "array", "items": of(&list.ty(), budget)?, "minItems": list.len(), "maxItems": list.len() })
        }
        Type::Map(map) => json!({ "type": "array", "items": tuple([map.key(), map.value()].iter(), budget)? }),
        Type::Tuple(types) => tuple(types.types().collect::<Vec<_>>().iter(), budget)?,
        Type::Record(record) => object(record.fields().map(|field| (field.name, field.ty)), budget)?,
        Type::Enum(cases) => json!({ "enum": cases.names().collect::<Vec<_>>() }),
        Type::Flags(flags) => {
            json!({ "type": "array", "items": { "enum": flags.names().collect::<Vec<_>>() }, "uniqueItems": true })
        }
        Type::Variant(variant) => cases(variant.cases().map(|case| (case.name, case.ty)), budget)?,
        Type::Result(result) => cases([("ok", result.ok()), ("err", result.err())].into_iter(), budget)?,
        Type::Option(option) => {
            let some = match option.ty() {
                // A null for the inner option must not be taken for one for the outer option.
                inner @ Type::Option(_) => case("some", Some(inner), budget)?,
                inner => of(&inner, budget)?,
            };
            json!({ "anyOf": [some, { "type": "null" }] })
        }
        Type::Own(_) | Type::Borrow(_) => {
            return Err("it takes or returns a resource, which has no meaning outside the component".to_owned());
        }
        Type::Future(_) | Type::Stream(_) | Type::ErrorContext => {
            return Err("it takes or returns a stream or a future, which needs another version of WASI".to_owned());
        }
    })
}

fn integer<T: serde::Serialize>(least: T, most: T) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

/// Returns the schema of a 64-bit integer: a number, or its digits as text for senders that would round the number.
fn long(pattern: &str, least: &Value, most: &Value) -> Value {
    json!({ "type": ["integer", "string"], "minimum": least, "maximum": most, "pattern": pattern })
}

fn tuple<'a>(types: impl ExactSizeIterator<Item = &'a Type>, budget: &mut TypeBudget) -> Result<Value, String> {
    let count = types.len();
    let items = types.map(|ty| of(ty, budget)).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "type": "array", "prefixItems": items, "minItems": count, "maxItems": count }))
}

/// Returns the schema of a variant: for each case only its name, or an object with its name and payload.
fn cases<'a>(all: impl Iterator<Item = (&'a str, Option<Type>)>, budget: &mut TypeBudget) -> Result<Value, String> {
    let all = all.map(|(name, ty)| case(name, ty, budget)).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "oneOf": all }))
}

fn case(name: &str, ty: Option<Type>, budget: &mut TypeBudget) -> Result<Value, String> {
    let Some(ty) = ty else { return Ok(json!({ "const": name })) };
    let carried = of(&ty, budget)?;
    Ok(json!({
        "type": "object", "properties": { name: carried }, "required": [name], "additionalProperties": false,
    }))
}
