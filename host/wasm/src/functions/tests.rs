#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use portcullis_config::PluginRef;
use portcullis_core::call::SessionId;
use portcullis_core::testing::caller;
use portcullis_test_support::guest;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::plugins;
use crate::{Component, ComponentAccess, ComponentKind, FailureCode, PluginError};

async fn load(access: ComponentAccess) -> Result<Component, PluginError> {
    plugins().component(&PluginRef::Path(guest("shapes")), &json!({}), &[], access).await
}

async fn functions() -> FunctionsComponent {
    match load(ComponentAccess::default()).await.unwrap().kind {
        ComponentKind::Functions(functions) => functions,
        other => panic!("{other:?}"),
    }
}

fn definition(functions: &FunctionsComponent, tool: &str) -> Value {
    let found = functions.definitions().into_iter().find(|tool_| tool_.get_str("name").as_deref() == Some(tool));
    found.unwrap_or_else(|| panic!("no {tool}")).read().unwrap()
}

async fn call(functions: &FunctionsComponent, tool: &str, arguments: Value) -> Result<Value, ToolFailure> {
    functions.call(&caller(&SessionId::new()), tool, &Json::of(&arguments)).await.map(|answer| answer.read().unwrap())
}

/// Returns how the component itself failed.
fn of_component(called: Result<Json, ToolFailure>) -> PluginFailure {
    match called {
        Err(ToolFailure::Component(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

async fn refusal(functions: &FunctionsComponent, tool: &str, arguments: Value) -> String {
    match call(functions, tool, arguments).await {
        Err(ToolFailure::InvalidArguments(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_function_is_a_tool_and_what_cannot_be_one_is_left_out() {
    let functions = functions().await;
    let names: Vec<_> = functions.definitions().iter().map(|tool| tool.get_str("name").unwrap()).collect();
    assert_eq!(names.len(), 21, "{names:?}");
    assert!(names.iter().any(|name| name == "divide") && names.iter().any(|name| name == "mirror_points"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("door") || name.contains("through")), "{names:?}");
}

#[tokio::test]
async fn no_more_calls_work_at_once_than_the_source_may_have() {
    let access =
        ComponentAccess { instances: 1, timeout: std::time::Duration::from_millis(50), ..ComponentAccess::default() };
    let ComponentKind::Functions(functions) = load(access).await.unwrap().kind else { panic!() };
    let (caller, nothing) = (caller(&SessionId::new()), Json::empty_object());
    let refused = tokio::select! {
        biased;
        spun = functions.call(&caller, "spin", &nothing) => panic!("{spun:?}"),
        // Its arguments are wrong, but nobody has read them.
        refused = functions.call(&caller, "greet", &nothing) => of_component(refused),
    };
    assert_eq!(refused.code, FailureCode::Busy);
    assert!(refused.detail.contains("write `cell = { instances = 2 }`"), "{refused}");
    assert!(functions.call(&caller, "nothing", &nothing).await.is_ok());
}

#[tokio::test]
async fn types_become_schemas() {
    let functions = functions().await;
    let schema = |tool: &str| definition(&functions, tool)["inputSchema"]["properties"]["v"].clone();
    assert_eq!(schema("mirror_bools"), json!({ "type": "boolean" }));
    assert_eq!(schema("mirror_longs")["prefixItems"][1]["maximum"], json!(u64::MAX));
    assert_eq!(schema("mirror_points")["required"], json!(["x", "y"]));
    assert_eq!(schema("mirror_colours")["items"], json!({ "enum": ["red", "green", "dark-blue"] }));
    assert_eq!(schema("mirror_shapes")["items"]["oneOf"][0], json!({ "const": "nothing" }));
    let greet = definition(&functions, "greet");
    assert_eq!(greet["inputSchema"]["required"], json!(["name"]));
    assert_eq!(greet["outputSchema"]["properties"]["result"], json!({ "type": "string" }));
    assert_eq!(definition(&functions, "divide")["outputSchema"]["properties"]["result"]["type"], "integer");
    assert!(definition(&functions, "nothing").get("outputSchema").is_none());
    for tool in functions.definitions() {
        let tool: Value = tool.read().unwrap();
        assert!(jsonschema::meta::is_valid(&tool["inputSchema"]), "{tool}");
    }
}

#[tokio::test]
async fn a_function_is_called_and_its_error_is_one_of_the_tool() {
    let functions = functions().await;
    let answer = call(&functions, "divide", json!({ "a": 7, "b": 2 })).await.unwrap();
    assert_eq!((&answer["structuredContent"], &answer["isError"]), (&json!({ "result": 3 }), &json!(false)));
    let answer = call(&functions, "divide", json!({ "a": 7, "b": 0 })).await.unwrap();
    assert_eq!((&answer["content"][0]["text"], &answer["isError"]), (&json!("division by zero"), &json!(true)));
    let answer = call(&functions, "greet", json!({ "name": "you", "times": 2 })).await.unwrap();
    assert_eq!(answer["content"][0]["text"], "hello youhello you");
    assert_eq!(call(&functions, "nothing", json!({})).await.unwrap()["content"], json!([]));
    assert_eq!(call(&functions, "none", json!({})).await, Err(ToolFailure::UnknownTool));
}

#[tokio::test]
async fn arguments_that_would_fill_the_memory_are_not_read() {
    let functions = functions().await;
    let large = "x".repeat(crate::limits::PAYLOAD_OUTPUT_BYTES);
    let Err(ToolFailure::InvalidArguments(why)) = call(&functions, "greet", json!({ "name": large })).await else {
        panic!("it is read")
    };
    assert!(why.contains("at most 8388608"), "{why}");
    // Values that are short as text, and values that are absent from it: the label of each point is `none`.
    let zeros = json!({ "v": [vec![0; 1_000_000]] });
    let points = json!({ "v": [{ "polygon": vec![json!({ "x": 0, "y": 0 }); 80_000] }] });
    assert!(value::count(points.to_string().as_bytes()) < value::MAX_VALUES);
    for (tool, arguments) in [("mirror_lists", zeros), ("mirror_shapes", points)] {
        let why = refusal(&functions, tool, arguments).await;
        assert!(why.contains("more than 250000 values"), "{why}");
    }
    assert_eq!(
        value::count(br#"{"a":[1,{}],"b\\\"":"[,{"}"#),
        6,
        "none of a text counts, and one too many of what is empty"
    );
}

#[tokio::test]
async fn integers_of_64_bits_lose_nothing_on_either_way() {
    let functions = functions().await;
    let there = json!({ "v": [i64::MIN, u64::MAX] });
    let as_text = json!([i64::MIN.to_string(), u64::MAX.to_string()]);
    let answer = call(&functions, "mirror_longs", there).await.unwrap();
    assert_eq!(answer["structuredContent"]["result"], as_text, "what a reader would round is text");
    let answer = call(&functions, "mirror_longs", json!({ "v": as_text })).await.unwrap();
    assert_eq!(answer["structuredContent"]["result"], as_text);
    let answer = call(&functions, "mirror_longs", json!({ "v": [-1, 9007199254740991_u64] })).await.unwrap();
    assert_eq!(answer["structuredContent"]["result"], json!([-1, 9007199254740991_u64]));
}

#[tokio::test]
async fn a_wrong_argument_is_named_with_its_place() {
    let functions = functions().await;
    for (tool, arguments, why) in [
        ("greet", json!({}), "arguments.name: missing"),
        ("greet", json!({ "name": 1 }), "arguments.name: 1 is not text"),
        ("greet", json!({ "name": "x", "time": 1 }), "arguments.time: unknown; there are name, times"),
        ("greet", json!({ "name": "x", "times": 256 }), "arguments.times: 256 is not an integer from 0 to 255"),
        ("mirror_lists", json!({ "v": [[1], [2, -3]] }), "arguments.v[1][1]: -3 is not an integer from 0 to 65535"),
        ("mirror_longs", json!({ "v": [1, "18446744073709551616"] }), "arguments.v[1]: "),
        ("mirror_longs", json!({ "v": [1, 1e30] }), "arguments.v[1]: 1e+30 is not an integer"),
        ("mirror_floats", json!({ "v": [1e39, 0] }), "arguments.v[0]: 1e+39 is not a number that fits into 32 bits"),
        ("mirror_colours", json!({ "v": ["blue"] }), "\"blue\" is not one of red, green, dark-blue"),
        ("mirror_flagged", json!({ "v": ["fly"] }), "\"fly\" is not one of read, write, run"),
        ("mirror_shapes", json!({ "v": ["circle"] }), "is not one of \"nothing\", {\"circle\": …}"),
        ("mirror_points", json!({ "v": { "x": 1 } }), "arguments.v.y: missing"),
        ("mirror_texts", json!({ "v": ["ab", ""] }), "arguments.v[0]: \"ab\" is not one character"),
        ("mirror_results", json!({ "v": [{ "ok": 1, "err": "x" }] }), "is not one of {\"ok\": …}, {\"err\": …}"),
    ] {
        let said = refusal(&functions, tool, arguments).await;
        assert!(said.contains(why), "{tool}: {said}");
    }
}

#[tokio::test]
async fn a_limit_that_is_met_is_named_and_the_next_call_works() {
    let functions = functions().await;
    for (tool, code, named) in [
        ("spin", FailureCode::Deadline, "5 s of processor time"),
        ("grow", FailureCode::Memory, "more than 64 MiB"),
        ("hoard", FailureCode::Memory, "more than 10000 handles"),
    ] {
        let failure = of_component(functions.call(&caller(&SessionId::new()), tool, &Json::empty_object()).await);
        assert!(failure.code == code && failure.detail.contains(named), "{failure}");
    }
    assert!(call(&functions, "nothing", json!({})).await.is_ok());
}

#[tokio::test]
async fn hundreds_of_calls_at_once_are_all_answered() {
    let functions = functions().await;
    let calls = (0..400).map(|n| call(&functions, "mirror_options", json!({ "v": n % 256 })));
    for (n, answer) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(answer.unwrap()["structuredContent"]["result"], json!(n % 256));
    }
}

#[test]
fn documentation_is_read_where_there_is_any() {
    let section = br#" {"worlds":{"shapes":{"func_exports":{"divide":{"docs":" Divides. "}}}},
        "interfaces":{"mirror":{"funcs":{"bools":"Mirrors.","bytes":{}}}}}"#;
    let mut section = section.to_vec();
    section[0] = 1;
    let docs = docs::Docs::of(Some(&section));
    assert_eq!(docs.function(None, "divide").as_deref(), Some("Divides."));
    assert_eq!(docs.function(Some("acme:shapes/mirror@1.2.0"), "bools").as_deref(), Some("Mirrors."));
    assert_eq!(docs.function(Some("acme:shapes/mirror@1.2.0"), "bytes"), None);
    for bad in [None, Some(b"".as_slice()), Some(b"\x01[]"), Some(b"\x02{}"), Some(b"\x01{\"worlds\":1}")] {
        assert_eq!(docs::Docs::of(bad).function(None, "divide"), None);
    }
}

/// Makes a value of a type from arbitrary numbers.
fn made(ty: &Type, source: &mut dyn FnMut() -> u64) -> Val {
    let some = |ty: &Type, source: &mut dyn FnMut() -> u64| Box::new(made(ty, source));
    let count = |source: &mut dyn FnMut() -> u64| source() % 4;
    match ty {
        Type::Bool => Val::Bool(source().is_multiple_of(2)),
        Type::S8 => Val::S8(source() as i8),
        Type::U8 => Val::U8(source() as u8),
        Type::S16 => Val::S16(source() as i16),
        Type::U16 => Val::U16(source() as u16),
        Type::S32 => Val::S32(source() as i32),
        Type::U32 => Val::U32(source() as u32),
        Type::S64 => Val::S64(source() as i64),
        Type::U64 => Val::U64(source()),
        Type::Float32 => Val::Float32(f32::from_bits(source() as u32)),
        Type::Float64 => Val::Float64(f64::from_bits(source())),
        Type::Char => Val::Char(char::from_u32(source() as u32 % 0x11_0000).unwrap_or('\u{fffd}')),
        Type::String => {
            let count = count(source);
            Val::String((0..count).map(|_| char::from_u32(source() as u32 % 0xd800).unwrap()).collect())
        }
        Type::List(list) => {
            let count = count(source);
            Val::List((0..count).map(|_| made(&list.ty(), source)).collect())
        }
        Type::Tuple(types) => Val::Tuple(types.types().map(|ty| made(&ty, source)).collect()),
        Type::Record(record) => {
            Val::Record(record.fields().map(|field| (field.name.to_owned(), made(&field.ty, source))).collect())
        }
        Type::Enum(cases) => {
            let names: Vec<_> = cases.names().collect();
            Val::Enum(names[source() as usize % names.len()].to_owned())
        }
        Type::Flags(flags) => {
            Val::Flags(flags.names().filter(|_| source().is_multiple_of(2)).map(str::to_owned).collect())
        }
        Type::Variant(variant) => {
            let cases: Vec<_> = variant.cases().collect();
            let case = &cases[source() as usize % cases.len()];
            Val::Variant(case.name.to_owned(), case.ty.as_ref().map(|ty| some(ty, source)))
        }
        Type::Option(option) => Val::Option((!source().is_multiple_of(3)).then(|| some(&option.ty(), source))),
        Type::Result(result) if source().is_multiple_of(2) => Val::Result(Ok(result.ok().map(|ty| some(&ty, source)))),
        Type::Result(result) => Val::Result(Err(result.err().map(|ty| some(&ty, source)))),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Checks that a value's JSON fits its schema, is read back as the same value, and passes through the
    /// component unchanged.
    #[test]
    fn every_value_makes_the_round_trip(numbers in prop::collection::vec(any::<u64>(), 1..64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let functions = functions().await;
            let mut numbers = numbers.into_iter().cycle();
            let mut source = || numbers.next().unwrap();
            for (tool, function) in functions.0.functions.iter().filter(|(tool, _)| tool.starts_with("mirror_")) {
                let ty = &function.parameters[0].1;
                let value = made(ty, &mut source);
                let json = value::of(&value, ty);
                let room = std::cell::Cell::new(value::MAX_VALUES);
                let read = value::read(&json, ty, &value::At::root("v", &room)).unwrap();
                prop_assert_eq!(&read, &value, "{}", &json);
                let schema = &definition(&functions, tool)["inputSchema"];
                let arguments = json!({ "v": json });
                prop_assert!(jsonschema::is_valid(schema, &arguments), "{} {}", schema, arguments);
                let answer = call(&functions, tool, arguments).await.unwrap();
                // Compared as JSON: a NaN has many bit patterns and one name.
                prop_assert_eq!(&answer["structuredContent"]["result"], &json);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_function_learns_who_calls_if_the_component_is_granted_it() {
    let load = async |grant: &[String]| {
        let plugin = PluginRef::Path(guest("greeter"));
        plugins().component(&plugin, &json!({}), grant, ComponentAccess::default()).await
    };
    let refused = load(&[]).await.unwrap_err().to_string();
    assert!(refused.contains("add `grant = [\"caller\"]`"), "{refused}");
    let ComponentKind::Functions(functions) = load(&["caller".to_owned()]).await.unwrap().kind else { panic!() };
    let answer = call(&functions, "greet", json!({})).await.unwrap();
    assert_eq!(answer["structuredContent"]["result"], "hello local", "{answer}");
}
