//! The launcher as a separate program, for embedders that cannot change their `main`.

fn main() {
    portcullis_jail::main_if_asked();
    eprintln!("portcullis-jail is started by the broker, not by hand");
    std::process::exit(126);
}
