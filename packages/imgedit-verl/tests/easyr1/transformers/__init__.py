raise ImportError("this is EasyR1's transformers, which the editor cannot use")
