//! The launcher as a program of its own, for embedders whose own `main` is not theirs to change.

fn main() {
    portcullis_jail::main_if_asked();
    eprintln!("portcullis-jail is started by the broker, not by hand");
    std::process::exit(126);
}
